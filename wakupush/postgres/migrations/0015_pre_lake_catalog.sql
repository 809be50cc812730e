-- The catalog of the lake's tables, which Iceberg itself reads and writes: its JDBC catalog's tables, schema version V1.
CREATE SCHEMA wakupush_lake;

CREATE TABLE wakupush_lake.iceberg_tables (
    catalog_name varchar(255) NOT NULL,
    table_namespace varchar(255) NOT NULL,
    table_name varchar(255) NOT NULL,
    metadata_location varchar(1000),
    previous_metadata_location varchar(1000),
    iceberg_type varchar(5),
    PRIMARY KEY (catalog_name, table_namespace, table_name)
);

CREATE TABLE wakupush_lake.iceberg_namespace_properties (
    catalog_name varchar(255) NOT NULL,
    namespace varchar(255) NOT NULL,
    property_key varchar(255),
    property_value varchar(1000),
    PRIMARY KEY (catalog_name, namespace, property_key)
);
