-- Which jobs have which tags, in order of their ids. Beside the jobs, so that those without tags are not in it.
create table hawser_tag (
    tag text not null,
    id text not null,
    seq integer not null, -- the job's
    primary key (tag, id)
) without rowid;

-- Kept by triggers, also when an older version writes. A job's tags never change.
create trigger hawser_job_tagged after insert on hawser_job when new.tags is not null begin insert into hawser_tag (tag, id, seq) select distinct value, new.id, new.seq from json_each(new.tags); end;

create trigger hawser_job_untagged after delete on hawser_job when old.tags is not null begin delete from hawser_tag where id = old.id and tag in (select value from json_each(old.tags)); end;

insert into hawser_tag (tag, id, seq)
select distinct t.value, j.id, j.seq from hawser_job as j cross join json_each(j.tags) as t where j.tags is not null;
