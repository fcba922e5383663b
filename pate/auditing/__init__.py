"""Lower bounds on epsilon, measured on the code that ships: what an attacker does find out."""
