"""Models fitted to class probabilities of public inputs: trees, a softmax regression, a network."""
