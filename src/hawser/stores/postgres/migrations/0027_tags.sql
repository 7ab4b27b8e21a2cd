-- Jobs are found by their tags. Jobs without any are in none of these indexes.
create index concurrently if not exists job_tags on hawser.job using gin ((tags::jsonb)) where tags is not null;
create index concurrently if not exists done_tags on hawser.done using gin ((tags::jsonb)) where tags is not null;
create index concurrently if not exists failed_tags on hawser.failed using gin ((tags::jsonb)) where tags is not null;
