-- The jobs of a batch that have not ended are counted now and then, beside those that have.
create index hawser_job_live_member on hawser_job (batch) where batch is not null and state in ('ready', 'running');
