"""The student: learns from released labels and public inputs, publishes what it learnt."""
