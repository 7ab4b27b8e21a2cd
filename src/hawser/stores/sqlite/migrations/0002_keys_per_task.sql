-- A key is held by a queue and a task. A key that is held already belongs to the task of its job.
create table hawser_key_new (
    queue text not null,
    task text not null,
    key text not null,
    job_id text not null,
    until integer,
    primary key (queue, task, key)
) without rowid;
insert into hawser_key_new (queue, task, key, job_id, until)
select k.queue, j.task, k.key, k.job_id, k.until from hawser_key as k join hawser_job as j on j.id = k.job_id;

-- A window may outlive its job, and then nothing tells the task. It goes on for every task that the queue knows, as it did before.
insert into hawser_key_new (queue, task, key, job_id, until)
select k.queue, d.task, k.key, k.job_id, k.until
from hawser_key as k join (select distinct queue, task from hawser_depth) as d on d.queue = k.queue
where k.until is not null and not exists (select 1 from hawser_job as j where j.id = k.job_id);

drop table hawser_key;
alter table hawser_key_new rename to hawser_key;
create index hawser_key_until on hawser_key (until) where until is not null;
update hawser_queue set keys = (select count(*) from hawser_key as k where k.queue = hawser_queue.queue);
