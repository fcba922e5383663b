"""Commands that need no role: ``account`` and ``plan``."""
