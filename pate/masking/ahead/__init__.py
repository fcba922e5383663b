"""The masked sum with keys that come ahead: two or three messages a party in place of five.

Each party makes one-time *bundles* before the sum: keys, and shares of its secrets sealed for all
others. A round takes one unused bundle of each party. Its steps are masked votes, consent if
:func:`~pate.masking.ahead.bundle.takes_consent` says so, and unmasking. All state is durable between
the steps, so that messages may travel as files.

Everybody masks with everybody, at most :data:`~pate.masking.ahead.bundle.MOST_PARTIES`. Proof:
docs/proofs/envelopes.md.
"""
