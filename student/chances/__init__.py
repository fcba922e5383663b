"""What a campaign's evidence says of every public input: class probabilities, by post-processing only."""
