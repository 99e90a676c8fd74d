"""Where a person meets us: parse, call one function, show."""
