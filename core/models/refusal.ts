/** Where the core finds the error of a model that declines. */
export { ModelRefusal } from "../plugin/model-errors.ts";
