-- name: existing
SELECT rolname FROM pg_roles WHERE rolname = ANY (%(roles)s)

-- name: may_create
SELECT rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = current_user

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

-- name: timeouts
-- The roles and their logins, and what is set for each in this database.
SELECT quote_ident(login.rolname), role.rolname, quote_ident(current_database()), coalesce(setconfig, '{}')
FROM pg_roles AS role
JOIN pg_roles AS login ON login.oid = role.oid OR EXISTS (
    SELECT FROM pg_auth_members WHERE roleid = role.oid AND member = login.oid
)
LEFT JOIN pg_db_role_setting ON setrole = login.oid
    AND setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
WHERE role.rolname = ANY (%(roles)s) AND (login.oid = role.oid OR login.rolcanlogin) AND NOT login.rolsuper
    AND NOT EXISTS (
        SELECT FROM pg_class
        WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p')
            AND pg_has_role(login.oid, relowner, 'USAGE')
    )
ORDER BY login.rolname, role.rolname

-- name: rights
-- Every right that there can be, by columns, and whether a login has it.
WITH relation AS (
    SELECT pg_class.oid, relowner,
        CASE nspname WHEN current_schema() THEN '' ELSE 'wakupush_lake.' END || quote_ident(relname) AS name
    FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname IN (current_schema(), 'wakupush_lake') AND relkind IN ('r', 'p', 'v')
)
SELECT name, privilege, attname, has_column_privilege(%(login)s, oid, attnum, privilege)
FROM relation JOIN pg_attribute ON attrelid = oid AND (attnum > 0 OR attname = 'ctid') AND NOT attisdropped,
    unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'REFERENCES']) AS privilege
UNION ALL
SELECT name, privilege_type, '', has_table_privilege(%(login)s, oid, privilege_type)
FROM relation, aclexplode(acldefault('r', relowner))
WHERE privilege_type NOT IN ('SELECT', 'INSERT', 'UPDATE', 'REFERENCES')
UNION ALL
SELECT format('FUNCTION %%I(%%s)', proname, oidvectortypes(proargtypes)), 'EXECUTE', '',
    has_function_privilege(%(login)s, oid, 'EXECUTE')
FROM pg_proc WHERE pronamespace = current_schema()::regnamespace AND prosecdef
UNION ALL
SELECT format('SCHEMA %%I', nspname), privilege, '', has_schema_privilege(%(login)s, oid, privilege)
FROM pg_namespace, unnest(ARRAY['USAGE', 'CREATE']) AS privilege WHERE nspname IN (current_schema(), 'wakupush_lake')
