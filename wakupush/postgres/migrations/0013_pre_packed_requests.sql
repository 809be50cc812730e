-- Requests that waited in our own queues until they were too old: neither pushed then nor by a repeat.
ALTER TABLE admitted_requests ADD COLUMN expired boolean NOT NULL DEFAULT false;

-- Ids that are past their time in admitted_requests, by the month of that: keyed digests, of which the first bits are the
-- row and the next 48 are in it, ascending.
CREATE TABLE packed_requests (
    month date NOT NULL,
    prefix integer NOT NULL,
    digests bytea NOT NULL,
    PRIMARY KEY (month, prefix)
);
ALTER TABLE packed_requests ALTER COLUMN digests SET STORAGE EXTERNAL;
-- How many bits a prefix has: chosen by how many ids a month brings.
CREATE TABLE packed_months (
    month date PRIMARY KEY,
    prefix_bits smallint NOT NULL
);
