# docker build -t penstock . && docker run --rm -p 127.0.0.1:3141:3141 --read-only --tmpfs /tmp -v penstock-data:/app/data penstock
# The image holds Node.js, the bundle with native code for this platform alone, and the manifest and plugins of this folder.
# Another service: -v "$PWD/service.yaml:/app/service.yaml:ro" -v "$PWD/plugins:/app/plugins:ro", or an image FROM this one.

FROM node:22-trixie AS build
WORKDIR /src
COPY package.json package-lock.json ./
RUN npm ci
COPY . .
# The packages that manifest and plugins name go along in the versions of the lock file, such as those of `local/use` (30 MB).
RUN npm run build && node dist/penstock.js build /app && mkdir /app/data

# glibc 2.38 or later, which uWebSockets.js needs on Node 22.
FROM node:22-trixie-slim
# Without auth only requests for this host are answered: the name by which others know the container, if there is one.
ENV NODE_ENV=production ALLOWED_HOST=localhost
WORKDIR /app
COPY --from=build /app ./
COPY --from=build --chown=node:node /app/data ./data
USER node
VOLUME /app/data
EXPOSE 3141
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s CMD ["node", "-e", "fetch('http://127.0.0.1:3141/readyz').then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]
# node itself, so that it gets the signals. Without auth in the manifest everybody who reaches the port may use it.
ENTRYPOINT ["node", "dist/penstock.js"]
CMD ["serve", "--host", "0.0.0.0", "--port", "3141"]
