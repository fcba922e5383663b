"""The masked sum: secure aggregation of the parties' vote matrices.

Pure state machines: bytes in, bytes out, with randomness passed in. :mod:`pate.masking.party` is
one party's side, :mod:`pate.masking.server` the server's, :mod:`pate.masking.context` their common
parameters.

It is the protocol of Bonawitz et al., "Practical secure aggregation for privacy-preserving machine
learning", CCS 2017, in its variant against a malicious server (figure 4, with signatures and the
consistency check): five phases, secrecy from any server that colludes with at most c parties, and
exact sums while at least t parties remain. Proof: docs/proofs/masked-sum.md.
"""
