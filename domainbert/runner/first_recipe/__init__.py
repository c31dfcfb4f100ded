"""`domainbert init`: write a first recipe for the user's data, with a reason for each number."""
