-- The jobs of a batch are found by it.
create index hawser_job_batch on hawser_job (batch, id) where batch is not null;
