"""``pate audit``: its options, and the audited mechanisms and campaigns."""
