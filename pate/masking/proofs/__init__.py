"""Zero-knowledge proofs that hidden votes are valid: no negative count, and each row sums to k.

In a masked sum no one sees one party's votes, so no one can check them. Here a party commits to its
counts, bit by bit, and proves to the server in zero knowledge that they are valid, and that it
masked them. Proof: docs/proofs/vote-proofs.md; design: docs/architecture.md.

The bits are rows of a matrix, each row the values of a polynomial, and each polynomial is evaluated
on a longer domain (:mod:`~pate.masking.proofs.code`). The columns are leaves of a hash tree, whose
root is the commitment (:mod:`~pate.masking.proofs.transcript`). For the server's seed the party
reveals random combinations of the rows, hidden by random rows, and some columns, hidden by random
coefficients; the server checks that they agree (:mod:`~pate.masking.proofs.argument`). One
combination, the link, has a mask that is itself part of the masked sum: so the server can compare
proofs and sum, but only over all survivors.

Source: the argument is that of Ames, Hazay, Ishai, Venkitasubramaniam, "Ligero: lightweight
sublinear arguments without a trusted setup", CCS 2017; the link is our own.
"""
