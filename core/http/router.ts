/** Finds the route of a path. Built at boot; the most specific route wins (a literal beats a parameter), whatever their order. */
interface Routed {
  method: string;
  path: string;
}

/** All routes of one path by method, with the value of their `Allow` header. */
export interface PathEndpoint<R extends Routed> {
  methods: Map<string, R>;
  allow: string;
}

export interface RouteMatch<R extends Routed> {
  endpoint: PathEndpoint<R>;
  /** Raw values of the parameters, in the order of the path. */
  values: string[];
}

interface Node<R extends Routed> {
  literals: Map<string, Node<R>>;
  parameter: Node<R> | null;
  endpoint: PathEndpoint<R> | null;
}

export interface Router<R extends Routed> {
  find(path: string): RouteMatch<R> | null;
}

const NO_VALUES: string[] = [];

/** @throws Error when two routes have the same method and the same path, apart from the names of parameters */
export function createRouter<R extends Routed>(routes: readonly R[]): Router<R> {
  const root: Node<R> = { literals: new Map(), parameter: null, endpoint: null };
  const literal = new Map<string, RouteMatch<R>>();
  for (const route of routes) {
    const endpoint = endpointAt(root, route);
    if (!route.path.includes("/:")) literal.set(route.path, { endpoint, values: NO_VALUES });
  }
  return { find: (path) => literal.get(path) ?? walk(root, path) };
}

function endpointAt<R extends Routed>(root: Node<R>, route: R): PathEndpoint<R> {
  let node = root;
  for (const segment of route.path.slice(1).split("/")) {
    if (segment.startsWith(":")) {
      node.parameter ??= { literals: new Map(), parameter: null, endpoint: null };
      node = node.parameter;
      continue;
    }
    let next = node.literals.get(segment);
    if (next === undefined) {
      next = { literals: new Map(), parameter: null, endpoint: null };
      node.literals.set(segment, next);
    }
    node = next;
  }
  node.endpoint ??= { methods: new Map(), allow: "" };
  const { methods } = node.endpoint;
  if (methods.has(route.method)) throw new Error(`two routes for ${route.method} ${route.path}`);
  methods.set(route.method, route);
  const allowed = new Set([...methods.keys(), ...(methods.has("GET") ? ["HEAD"] : []), "OPTIONS"]);
  node.endpoint.allow = [...allowed].sort().join(", ");
  return node.endpoint;
}

function walk<R extends Routed>(root: Node<R>, path: string): RouteMatch<R> | null {
  const values: string[] = [];
  const node = descend(root, path, 1, values);
  return node === null ? null : { endpoint: node, values };
}

/** Depth first, the literal before the parameter: `/workflows/executions` wins over `/workflows/:id`. */
function descend<R extends Routed>(
  node: Node<R>,
  path: string,
  from: number,
  values: string[],
): PathEndpoint<R> | null {
  const slash = path.indexOf("/", from);
  const last = slash === -1;
  const segment = last ? path.slice(from) : path.slice(from, slash);
  const literal = node.literals.get(segment);
  if (literal !== undefined) {
    const found = last ? literal.endpoint : descend(literal, path, slash + 1, values);
    if (found !== null) return found;
  }
  const { parameter } = node;
  if (parameter === null || segment === "") return null;
  const depth = values.length;
  values.push(segment);
  const found = last ? parameter.endpoint : descend(parameter, path, slash + 1, values);
  if (found === null) values.length = depth;
  return found;
}
