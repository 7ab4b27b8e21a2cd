-- name: missing_rights
-- What the role of this connection may not do with a schema and the tables in it; for one that is not there, whether it may make it.
-- In this order: a plan that runs the parts beside each other gives them in any.
select may_not from (
    select 1 as place, format('make the schema %I in the database %I', $1::text, current_database()) as may_not
    where to_regnamespace(quote_ident($1)) is null and not has_database_privilege(current_database(), 'create')
    union all
    select 2, format('use the schema %I', nspname) from pg_namespace where nspname = $1 and not has_schema_privilege(oid, 'usage')
    union all
    select 3, format('make tables and functions in the schema %I', nspname) from pg_namespace
    where nspname = $1 and not has_schema_privilege(oid, 'create')
    union all
    select 4, format('read and write the tables %s', string_agg(quote_ident(c.relname), ', ' order by c.relname))
    from pg_class as c join pg_namespace as n on n.oid = c.relnamespace
    where n.nspname = $1 and c.relkind in ('r', 'p') and not (
        has_table_privilege(c.oid, 'select') and has_table_privilege(c.oid, 'insert')
        and has_table_privilege(c.oid, 'update') and has_table_privilege(c.oid, 'delete')
    )
    having count(*) > 0
    union all
    select 5, format('alter the tables %s', string_agg(quote_ident(c.relname), ', ' order by c.relname))
    from pg_class as c join pg_namespace as n on n.oid = c.relnamespace
    where n.nspname = $1 and c.relkind in ('r', 'p') and not pg_has_role(c.relowner, 'usage')
    having count(*) > 0
) as missing
order by place

-- name: sizes
-- Bytes of the tables of a schema with all that belongs to them, and of the indexes among them.
select coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint as tables, coalesce(sum(pg_indexes_size(c.oid)), 0)::bigint as indexes
from pg_class as c join pg_namespace as n on n.oid = c.relnamespace where n.nspname = $1 and c.relkind = 'r'
