"""The student: learns from released labels and public inputs, and publishes a model."""
