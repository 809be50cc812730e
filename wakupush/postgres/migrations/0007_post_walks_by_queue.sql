-- The code before 0007 walked by these.
DELETE FROM watermarks WHERE walk IN ('own_topics', 'query_topics');
