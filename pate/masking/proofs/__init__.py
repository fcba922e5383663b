"""Proofs that hidden votes are valid: no count is negative, and each row of them sums to k.

In a masked sum nobody sees one party's votes, so nobody can check them. Here a party commits to
its counts, bit by bit, and proves to the server, showing nothing else, that they are valid, and
that they are what it masked. docs/proofs/vote-proofs.md has the argument, and
docs/decisions/0008-vote-proofs.md why it is this one.

The bits are rows of a matrix, each row the values of a polynomial, and each polynomial is written
out on a longer domain (:mod:`~pate.masking.proofs.code`). The columns are leaves of a hash tree,
whose root is the commitment (:mod:`~pate.masking.proofs.tree`). Against the server's seed the party
shows random combinations of the rows, hidden by random rows, and some columns, hidden by random
coefficients (:mod:`~pate.masking.proofs.prover`); the server checks that they agree
(:mod:`~pate.masking.proofs.verifier`). One combination, the link, has a mask that goes through the
masked sum itself: so the server can compare proofs and sum, and only over all survivors
(:mod:`~pate.masking.proofs.link`).

Source: the argument is that of Ames, Hazay, Ishai, Venkitasubramaniam, "Ligero: lightweight
sublinear arguments without a trusted setup", CCS 2017; the link is our own.
"""
