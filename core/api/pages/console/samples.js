/** The numbers of `GET /metrics`. */

/** @typedef {{ name: string, labels: Record<string, string>, value: number }} Sample */

const SAMPLE = /^(\w+)(?:\{(.*)\})? (\S+)$/gm;
const LABEL = /(?<!\w)(\w+)="((?:[^"\\]|\\.)*)"/g;
/** Of each model: 0 while it is called, 1 on trial, 2 when it failed too often. */
export const CIRCUIT = "penstock_model_circuit_state";

/** @param {string} text @returns {Sample[]} */
export const samplesOf = (text) =>
  [...text.matchAll(SAMPLE)].map(([, name = "", labels = "", value]) => ({
    name,
    labels: Object.fromEntries([...labels.matchAll(LABEL)].map(([, key, each = ""]) => [key, each])),
    value: Number(value),
  }));

/** @param {readonly Sample[]} samples @param {string} name @param {(labels: Record<string, string>) => boolean} [counts] */
export const sum = (samples, name, counts = () => true) =>
  samples.reduce((total, each) => (each.name === name && counts(each.labels) ? total + each.value : total), 0);
