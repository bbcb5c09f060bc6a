# Read by MySQL's image once, when the data folder is new (not executable on purpose: it is sourced, which gives it
# docker_process_sql). The image itself makes the owner account, which migrates; this makes the account that works.
docker_process_sql --database=mysql <<SQL
CREATE USER 'memriver'@'%' IDENTIFIED BY '${MEMRIVER_DATABASE_PASSWORD}';
GRANT SELECT, INSERT, UPDATE, DELETE ON \`${MYSQL_DATABASE}\`.* TO 'memriver'@'%';
SQL
