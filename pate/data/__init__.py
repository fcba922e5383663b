"""Images, tables and labelled data sets: the values and the readers that all roles share."""
