-- What runs write while they run, beside their jobs: only added to. `total` is the size of this chunk and of all before it, `place` its
-- place in the output of its run: the last chunk of a job tells how much there is.
create table hawser_output (
    job integer not null,
    number integer not null,
    lease integer not null,
    attempt integer not null,
    place integer not null,
    total integer not null,
    at integer not null,
    body blob not null,
    primary key (job, number)
) without rowid;

-- The waits for events that last, to be counted.
create index hawser_step_awaiting on hawser_step (event) where event is not null and kind = 'wait';
