-- name: existing
SELECT rolname FROM pg_roles WHERE rolname = ANY (%(roles)s)

-- name: may_create
SELECT rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = current_user

-- name: outside
SELECT role FROM unnest(%(roles)s::text[]) AS role WHERE NOT has_schema_privilege(role, current_schema(), 'USAGE')

-- name: outside_the_catalog
SELECT role FROM unnest(%(roles)s::text[]) AS role WHERE NOT has_schema_privilege(role, 'wakupush_lake', 'USAGE')

-- name: granted
SELECT rolname, kind, privilege_type, part
FROM (
    SELECT relname AS kind, '' AS part, granted.* FROM pg_class, aclexplode(relacl) AS granted
    WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p', 'v')
    UNION ALL
    SELECT relname, attname, granted.* FROM pg_class
    JOIN pg_attribute ON attrelid = pg_class.oid AND NOT attisdropped, aclexplode(attacl) AS granted
    WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p', 'v')
    UNION ALL
    SELECT format('%%s(%%s)', proname, oidvectortypes(proargtypes)), '', granted.* FROM pg_proc, aclexplode(proacl) AS granted
    WHERE pronamespace = current_schema()::regnamespace
) AS every
JOIN pg_roles ON pg_roles.oid = grantee
WHERE rolname = ANY (%(roles)s)

-- name: logins
-- The login that made a role may administrate it, but does not have its rights by that.
SELECT login.rolname, role.rolname, EXISTS (
    SELECT FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p')
        AND pg_has_role(login.oid, relowner, 'USAGE')
)
FROM pg_roles AS role
JOIN pg_roles AS login ON login.oid = role.oid OR EXISTS (
    SELECT FROM pg_auth_members WHERE roleid = role.oid AND member = login.oid AND NOT admin_option
)
WHERE role.rolname = ANY (%(roles)s) AND login.rolcanlogin
ORDER BY login.rolname, role.rolname

-- name: columns
SELECT relname, array_agg(attname::text) FROM pg_class
JOIN pg_attribute ON attrelid = pg_class.oid AND attnum > 0 AND NOT attisdropped
WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p', 'v')
GROUP BY relname

-- name: held
SELECT relname, privilege, attname FROM pg_class
JOIN pg_attribute ON attrelid = pg_class.oid AND attnum > 0 AND NOT attisdropped,
    unnest(ARRAY['SELECT', 'INSERT', 'UPDATE']) AS privilege
WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p', 'v')
    AND has_column_privilege(%(login)s, pg_class.oid, attnum, privilege)
UNION ALL
SELECT relname, privilege, '' FROM pg_class, unnest(ARRAY['DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']) AS privilege
WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p', 'v')
    AND has_table_privilege(%(login)s, pg_class.oid, privilege)
UNION ALL
SELECT format('%%s(%%s)', proname, oidvectortypes(proargtypes)), 'EXECUTE', '' FROM pg_proc
WHERE pronamespace = current_schema()::regnamespace AND prosecdef
    AND has_function_privilege(%(login)s, pg_proc.oid, 'EXECUTE')
UNION ALL
SELECT current_schema(), 'CREATE', '' WHERE has_schema_privilege(%(login)s, current_schema(), 'CREATE')
