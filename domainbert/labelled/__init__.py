"""Labelled files as items: columns, tags, rows, JSON, exports of annotation tools, splits; without torch."""
