"""The party's table as synthesis sees it: domain, coding, network, and private rows."""
