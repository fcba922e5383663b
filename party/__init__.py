"""The party (data holder): trains teachers on its own records and answers queries with votes."""
