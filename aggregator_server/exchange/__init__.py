"""What is asked of parties and what they answer: presence, the public set, sums of votes."""
