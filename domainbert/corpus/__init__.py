"""Raw text: readers, cleaning, duplicates, split into training and validation documents."""
