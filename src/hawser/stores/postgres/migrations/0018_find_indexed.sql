-- Jobs are found by their arguments, wherever one of them stands. Jobs without any are in none of these indexes.
create index concurrently if not exists job_indexed_0 on hawser.job ((indexed::jsonb ->> 0), id) where indexed is not null;
create index concurrently if not exists job_indexed_1 on hawser.job ((indexed::jsonb ->> 1), id) where indexed is not null;
create index concurrently if not exists job_indexed_2 on hawser.job ((indexed::jsonb ->> 2), id) where indexed is not null;
create index concurrently if not exists done_indexed_0 on hawser.done ((indexed::jsonb ->> 0), id) where indexed is not null;
create index concurrently if not exists done_indexed_1 on hawser.done ((indexed::jsonb ->> 1), id) where indexed is not null;
create index concurrently if not exists done_indexed_2 on hawser.done ((indexed::jsonb ->> 2), id) where indexed is not null;
create index concurrently if not exists failed_indexed_0 on hawser.failed ((indexed::jsonb ->> 0), id) where indexed is not null;
create index concurrently if not exists failed_indexed_1 on hawser.failed ((indexed::jsonb ->> 1), id) where indexed is not null;
create index concurrently if not exists failed_indexed_2 on hawser.failed ((indexed::jsonb ->> 2), id) where indexed is not null;
