"""Raw text: readers, cleaning, deduplication, split into training and validation documents."""
