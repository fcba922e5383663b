"""Training and evaluation of the network behind teachers of tiny tables, ``--model prior``."""
