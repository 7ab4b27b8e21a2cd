-- How often it was looked whether the job ended before this row could be seen. `seen` is the time of the next look; 0: at once.
alter table hawser.dependency add column looks smallint not null default 0;
