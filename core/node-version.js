// Imported first by what starts Penstock, and readable by old versions of Node: those say here what is wrong, instead of failing later.
const [major, minor] = process.versions.node.split(".").map(Number);
if (major < 20 || (major === 20 && minor < 19)) {
  console.error(`penstock needs Node 20.19 or newer; this is Node ${process.versions.node}`);
  process.exit(1);
}
