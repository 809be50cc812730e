-- The index of those that were registered last took its place.
DROP INDEX query_topics_underived;
