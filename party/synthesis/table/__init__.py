"""The party's table for synthesis: domain, coding, network, and private rows."""
