#define TABLE_SIZE 16
int filemap_add(int index);
int slow(int index);
