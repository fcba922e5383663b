"""How a cost that depends on the votes may be told, or made a guarantee of."""
