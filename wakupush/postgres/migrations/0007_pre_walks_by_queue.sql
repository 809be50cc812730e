-- Stores are walked for each queue by itself; each goes on where the walk of all went before.
INSERT INTO watermarks (store, pubsub_topic, walk, walked_to)
SELECT store, pubsub_topic, new.walk, walked_to
FROM watermarks
JOIN (VALUES ('own_topics', 'registration'), ('own_topics', 'dispatch'), ('query_topics', 'query')) AS new (old, walk)
    ON watermarks.walk = new.old;
