# The images of gshare: docker build --target gshare-node -t gshare-node:dev .    and the same with gshare-scheduler,
# gshare-controller, gshare-gateway and gshare-descheduler.
# Bases have their whole names, which podman wants. Pin them by digest in a build of your own that others run: a tag may move.
FROM docker.io/library/golang:1.26.8-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# What kubectl gshare version shows: docker build --build-arg VERSION=v0.2.0. The tag of the image should be the same.
ARG VERSION=
ENV LDFLAGS="-s -w -X github.com/gshare-dev/gshare/cmd/internal/release.version=$VERSION"
RUN go build -trimpath -ldflags="$LDFLAGS" -o /out/ ./cmd/gshare-node ./cmd/gshare && hack/hook.sh build /out/hook
RUN CGO_ENABLED=0 go build -trimpath -ldflags="$LDFLAGS" -o /out/ ./cmd/gshare-scheduler ./cmd/gshare-controller ./cmd/gshare-gateway

# The descheduler is a module of its own.
FROM build AS build-descheduler
WORKDIR /src/cmd/gshare-descheduler
RUN CGO_ENABLED=0 go build -trimpath -ldflags="$LDFLAGS" -o /out/gshare-descheduler .

FROM scratch AS gshare-descheduler
COPY --from=build-descheduler /out/gshare-descheduler /usr/local/bin/
ENV PATH=/usr/local/bin
USER 65532:65532
ENTRYPOINT ["gshare-descheduler"]

# A C library is all that it needs: NVIDIA's container runtime brings NVML and MPS.
FROM docker.io/library/debian:12.11-slim AS gshare-node
COPY --from=build /out/gshare-node /out/gshare /usr/local/bin/
COPY --from=build /out/hook/libgshare.so /out/hook/libgshare-mps.so /out/hook/gshare-drain /out/hook/libgshare_store.so /out/hook/gshare_store.py /out/hook/gshare_safetensors.py /usr/lib/gshare/
ENTRYPOINT ["gshare-node"]

# It is static, and knows the API server by the certificate of its service account.
FROM scratch AS gshare-scheduler
COPY --from=build /out/gshare-scheduler /usr/local/bin/
ENV PATH=/usr/local/bin
USER 65532:65532
ENTRYPOINT ["gshare-scheduler"]

FROM scratch AS gshare-gateway
COPY --from=build /out/gshare-gateway /usr/local/bin/
ENV PATH=/usr/local/bin
USER 65532:65532
ENTRYPOINT ["gshare-gateway"]

FROM scratch AS gshare-controller
COPY --from=build /out/gshare-controller /usr/local/bin/
ENV PATH=/usr/local/bin
USER 65532:65532
ENTRYPOINT ["gshare-controller"]
