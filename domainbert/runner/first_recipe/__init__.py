"""`domainbert init`: a first recipe for one's own data, whose numbers have a reason each."""
