"""Evaluation of a student on labelled public data: rates, scores of probabilities, thresholds, pictures."""
