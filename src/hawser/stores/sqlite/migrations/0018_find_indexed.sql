-- Jobs are found by their arguments, wherever one of them stands. Jobs without any are in none of these indexes.
create index hawser_job_indexed_0 on hawser_job (json_extract(indexed, '$[0]'), id) where indexed is not null;
create index hawser_job_indexed_1 on hawser_job (json_extract(indexed, '$[1]'), id) where indexed is not null;
create index hawser_job_indexed_2 on hawser_job (json_extract(indexed, '$[2]'), id) where indexed is not null;
