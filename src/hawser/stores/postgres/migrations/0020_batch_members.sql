-- The jobs of a batch are found by it. A step of its own: indexes are made before the transaction of their step, and the column is new.
create index concurrently if not exists job_batch on hawser.job (batch, id) where batch is not null;
create index concurrently if not exists done_batch on hawser.done (batch, id) where batch is not null;
create index concurrently if not exists failed_batch on hawser.failed (batch, id) where batch is not null;
