"""Publishing a data-dependent cost, or turning it into a guarantee."""
