"""The masked sum: parties' vote matrices are added up, and nobody sees one of them.

Pure state machines: bytes in, bytes out, with randomness passed in. :mod:`pate.masking.party` is
one party's side, :mod:`pate.masking.server` the server's, :mod:`pate.masking.context` what they
must agree on first.

It is the protocol of Bonawitz et al., "Practical secure aggregation for privacy-preserving machine
learning", CCS 2017, in its variant against a server that lies (figure 4, with signatures and the
consistency check): five phases, secrecy from any server that works together with at most c
parties, and exact sums while at least t parties stay. docs/proofs/masked-sum.md has the argument.
"""
