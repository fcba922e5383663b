"""A party's own page: who asks, what would leave, and two buttons, on this machine's loopback by token."""
